// SPDX-License-Identifier: Apache-2.0
// The search of the site runs in a worker, which a browser does not start from a file. Where
// the site is opened so, a frame without a face does its work. The theme looks for that name.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const page = this.inside.document;
      this.inside.postMessage = (data) => this.tell(data);
      this.inside.importScripts = (...urls) =>
        urls.reduce((before, u) => before.then(() => this.load(u)), Promise.resolve());
      this.page = page;
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.page.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = done;
        script.onerror = failed;
        this.page.body.append(script);
      });
    }

    tell(data) {
      const event = new MessageEvent("message", { data });
      if (typeof this.onmessage === "function") this.onmessage(event);
      this.dispatchEvent(event);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
