"""Who may do what: tokens, the keys that they are checked with, and what they grant.

    grants     Grant: which actions on which names, until when, within which limits
    refusals   AuthError: why a token is refused, and what MoQT calls that
    tokens     what is common to both kinds of tokens: a seal, and claims
    paths      the claims root, put and get of moq-relay
    jwt, cat   the two kinds: JSON (those claims and ours) and CBOR (C4M)
    cose       what a CAT is sealed in
    ed25519    the check of a signature
    keys       one key, and a set of them by key id
    key_files  keys and revocations from files, read again when these change
    judge      Verifier: a token and the time in, a Grant or an AuthError out
    origins    whose a name is, and what is asked of an origin
    origin_api that question and its answer, as JSON
    bounds     what a relay with a key may be, and speak for
    peers      what relays prove to each other with
    issue      new tokens, for `laps token sign` and for tests

No sockets and no clock: `now` is an argument, in seconds since 1970. `cryptography` and `cbor2` are
imported where the first key is read and the first CAT is opened: a relay that checks no tokens does
not pay for them.
"""
