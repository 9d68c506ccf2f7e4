// The page's address: `c/ID` names the conversation that is open. The root is found from this file, so that the page
// works behind a path prefix and at every address of its own.
export const root = new URL("../../", import.meta.url);

const FOLDER = `${root.pathname}c/`;

export const address = (path) => new URL(path, root).href;

export const linkTo = (id) => address(id ? `c/${encodeURIComponent(id)}` : "./");

export const named = () => (location.pathname.startsWith(FOLDER) ? decodeURIComponent(location.pathname.slice(FOLDER.length)) : null);

export function go(id, replaces = false) {
  if (named() !== id) history[replaces ? "replaceState" : "pushState"](null, "", linkTo(id));
}
