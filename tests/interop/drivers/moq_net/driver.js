// @moq/net in a page: ?role=publish|subscribe&url=...&namespace=...&draft=14|16 and so on.
import * as Moq from "@moq/net";

const settings = Object.fromEntries(new URLSearchParams(location.search));

// One after the other, so that what is said arrives in its order.
let said = Promise.resolve();
function say(event, what = {}) {
	const body = JSON.stringify({ event, ...what });
	said = said.then(() => fetch(`/say/${settings.page}`, { method: "POST", body }));
	return said;
}

async function told(word) {
	while ((await (await fetch(`/word/${settings.page}`)).text()) !== word);
}

function connect() {
	const webtransport = { serverCertificateHashes: [{ value: settings.fingerprint }] };
	// It speaks draft 14 only to a relay that names no protocol, "moq-00" included: offer none.
	webtransport.protocols = settings.draft === "14" ? [] : [`moqt-${settings.draft}`];
	return Moq.Connection.connect(new URL(settings.url), { webtransport, websocket: { enabled: false } });
}

async function publish(connection) {
	const broadcast = new Moq.Broadcast.Producer();
	const track = broadcast.createTrack(settings.track);
	connection.publish(Moq.Path.from(settings.namespace), broadcast);
	say("announced");
	while (!track.used.peek()) await new Promise((resolve) => setTimeout(resolve, 5));
	say("demand");
	for (const payloads of JSON.parse(settings.groups)) {
		await told("go");
		const group = track.appendGroup();
		for (const payload of payloads) group.writeString(payload);
		group.close();
	}
	// It says that the track is done ahead of the streams that it still writes.
	await told("finish");
	track.close();
	await told("close");
	broadcast.close();
}

// It knows no object that says "the track ends here" (status 4), and moq-rs ends its tracks so.
function unlessEndOfTrack(error) {
	if (!String(error).endsWith("Unsupported object status: 4")) throw error;
}

async function subscribe(connection) {
	const announced = connection.announced(Moq.Path.from(settings.namespace));
	const first = await announced.next();
	say("available", { active: first?.active });
	const track = connection.consume(Moq.Path.from(settings.namespace)).track(settings.track).subscribe({ priority: 0 });
	say("subscribed");
	for (;;) {
		const group = await track.recvGroup();
		if (!group) break;
		for (;;) {
			const payload = await group.readString().catch(unlessEndOfTrack);
			if (payload === undefined) break;
			say("object", { group: group.sequence, payload });
		}
	}
	say("end");
	const next = await announced.next();
	if (next?.active === false) say("withdrawn");
}

async function main() {
	const connection = await connect();
	say("connected", { version: connection.version, transport: connection.transport });
	await { publish, subscribe }[settings.role](connection);
}

main().catch((error) => say("error", { text: String(error) }));
