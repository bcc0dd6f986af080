// Unpacks Vega and gives it to every live chart of the page through one promise.

async function unpack(bytes) {
  const unzipped = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(unzipped).arrayBuffer();
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return (await import(/* webpackIgnore: true */ address)).vegaEmbed;
  } finally {
    URL.revokeObjectURL(address);
  }
}

// Not awaited: a widget has two seconds to initialize, and the charts wait for the promise, not for this widget.
function initialize({ model }) {
  const slot = ((globalThis.workbenchVega ??= {})[model.get("_vega_lite")] ??= Promise.withResolvers());
  if (slot.started) return; // a second notebook in the same page
  slot.started = true;
  unpack(model.get("_bundle")).then(slot.resolve, slot.reject);
}

export default { initialize };
