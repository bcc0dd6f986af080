// Opens the explorer running. A notebook is run only where every cell is letter for letter that of the explorer as we ship
// it (explorer.json, beside this file) and where it lies in the lab's own folder: what a person has edited or was sent by
// somebody is opened as JupyterLab opens any notebook. Written as JupyterLab's build would write it, so it needs no build.
(window._JUPYTERLAB ??= {})["overlap-workbench"] = (() => {
  const SHOWN = "# The page shows the explorer."; // workbench/lab.py waits for it
  const shipped = fetch(new URL("explorer.json", document.currentScript.src)).then((answer) => answer.json());

  async function open(panel, { NotebookActions }) {
    const { context, content, node, sessionContext } = panel;
    const cells = JSON.stringify(await shipped);
    await context.ready;
    const { model, path } = context;
    const own = () => JSON.stringify(Array.from(model.cells, ({ type, sharedModel }) => [type, sharedModel.getSource()]));
    const isShipped = () => !path.includes("/") && path === context.path && own() === cells;
    if (!isShipped()) return;
    // outputs alone are nothing to save: they are made anew at every opening
    const keep = () => model.dirty && isShipped() && (model.dirty = false);
    model.stateChanged.connect(keep);
    keep();
    const run = () => isShipped() && NotebookActions.runAll(content, sessionContext);
    let restarted = false;
    sessionContext.statusChanged.connect((_, status) => {
      if (restarted && status === "idle") run();
      restarted = status === "restarting" || (restarted && status !== "idle");
    });
    node.addEventListener("drawn", function tell({ target }) {
      if (!target.closest(".wb-timeline")) return;
      node.removeEventListener("drawn", tell);
      sessionContext.session?.kernel?.requestExecute({ code: SHOWN, store_history: false });
    });
    await panel.revealed;
    await sessionContext.ready;
    run();
  }

  const plugin = (notebook) => ({
    id: "overlap-workbench:explorer",
    autoStart: true,
    requires: [notebook.INotebookTracker],
    activate(_, tracker) {
      tracker.widgetAdded.connect((_, panel) => void open(panel, notebook));
    },
  });
  let shared;
  return {
    init: (modules) => void (shared = modules),
    get: async () => {
      const [{ get }] = Object.values(shared["@jupyterlab/notebook"]);
      const notebook = (await get())();
      return () => ({ __esModule: true, default: plugin(notebook) });
    },
  };
})();
