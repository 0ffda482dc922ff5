// The numbers of draft-ietf-moq-transport-16 that a client meets.

export const PROTOCOL = "moqt-16";

export const Message = {
  REQUEST_UPDATE: 0x02,
  SUBSCRIBE: 0x03,
  SUBSCRIBE_OK: 0x04,
  REQUEST_ERROR: 0x05,
  PUBLISH_NAMESPACE: 0x06,
  REQUEST_OK: 0x07,
  NAMESPACE: 0x08,
  PUBLISH_NAMESPACE_DONE: 0x09,
  UNSUBSCRIBE: 0x0a,
  PUBLISH_DONE: 0x0b,
  TRACK_STATUS: 0x0d,
  NAMESPACE_DONE: 0x0e,
  GOAWAY: 0x10,
  SUBSCRIBE_NAMESPACE: 0x11,
  MAX_REQUEST_ID: 0x15,
  FETCH: 0x16,
  FETCH_CANCEL: 0x17,
  FETCH_OK: 0x18,
  REQUESTS_BLOCKED: 0x1a,
  PUBLISH: 0x1d,
  PUBLISH_OK: 0x1e,
  CLIENT_SETUP: 0x20,
  SERVER_SETUP: 0x21,
};

export const Setup = { MAX_REQUEST_ID: 0x02, AUTHORIZATION_TOKEN: 0x03, IMPLEMENTATION: 0x07 };
export const Parameter = { LARGEST_OBJECT: 0x09, FORWARD: 0x10, SUBSCRIPTION_FILTER: 0x21 };

export const USE_VALUE = 0x03; // an alias type: the token follows, and is not to be remembered
export const OUT_OF_BAND = 0x00; // a token type: a JWT, or a CAT in base64url

export const LARGEST_OBJECT = 0x02; // a filter: from the largest object on
export const RELATIVE_JOINING_FETCH = 0x02;
export const TRACKS_AND_NAMESPACES = 0x02; // what a SUBSCRIBE_NAMESPACE wants to hear of
export const FETCH_HEADER = 0x05;

export const SessionCode = { NO_ERROR: 0x0, PROTOCOL_VIOLATION: 0x3 };
export const DoneCode = { TRACK_ENDED: 0x2 };
export const ResetCode = { CANCELLED: 0x1 };
export const RequestCode = {
  INTERNAL_ERROR: 0x0,
  UNAUTHORIZED: 0x1,
  TIMEOUT: 0x2,
  NOT_SUPPORTED: 0x3,
  DOES_NOT_EXIST: 0x10,
  INVALID_RANGE: 0x11,
  MALFORMED_TRACK: 0x12,
  DUPLICATE_SUBSCRIPTION: 0x19,
  UNINTERESTED: 0x20,
  PREFIX_OVERLAP: 0x30,
  INVALID_JOINING_REQUEST_ID: 0x32,
};
