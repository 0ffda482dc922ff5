// A camera and its viewers, as `<moq-publish>` and `<moq-watch>` in a page: ?fingerprint=...&draft=14|16,
// and &url=...&name=... for a page that is a camera from the beginning.
import "@moq/publish/element";
import "@moq/watch/element";

const settings = Object.fromEntries(new URLSearchParams(location.search));

function element(kind, url, name) {
	const made = document.createElement(kind);
	const webtransport = { serverCertificateHashes: [{ value: settings.fingerprint }] };
	// It speaks draft 14 only to a relay that names no protocol, "moq-00" included: offer none.
	webtransport.protocols = settings.draft === "14" ? [] : [`moqt-${settings.draft}`];
	made.connection.webtransport = webtransport;
	made.connection.websocket = { enabled: false };
	made.setAttribute("name", name);
	made.setAttribute("url", url);
	return made;
}

window.publish = (url, name) => {
	const publisher = element("moq-publish", url, name);
	publisher.setAttribute("source", "camera");
	document.body.append(publisher);
};

const viewers = {};

window.watch = (id, url, name) => {
	const viewer = element("moq-watch", url, name);
	viewer.setAttribute("visible", "always");
	viewer.append(document.createElement("canvas"));
	document.body.append(viewer);
	viewers[id] = viewer;
};

window.unwatch = (id) => {
	viewers[id].remove();
	delete viewers[id];
};

// What is on the canvas, as a number, and how many bytes of sound have come.
const thumbnail = document.createElement("canvas");
thumbnail.width = thumbnail.height = 32;
const pixels = thumbnail.getContext("2d", { willReadFrequently: true });

window.look = (id) => {
	const viewer = viewers[id];
	const canvas = viewer.querySelector("canvas");
	let picture = 0;
	if (canvas.width && canvas.height) {
		pixels.drawImage(canvas, 0, 0, 32, 32);
		for (const value of pixels.getImageData(0, 0, 32, 32).data) picture = (picture * 31 + value) | 0;
	}
	return { picture, sound: viewer.audio.out.stats.peek()?.bytesReceived ?? 0 };
};

if (settings.name) window.publish(settings.url, settings.name);
