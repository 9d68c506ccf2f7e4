// Links to single messages. Where the server has a response of the branch, the link names its newest one and counts from
// the first message, so that it opens in any browser that may read it; else it names a conversation of this browser.
import { copy } from "../lib/files.js";
import { address, linkTo } from "../lib/place.js";
import { current, update } from "../chat/store.js";
import { choose, pathTo, shown } from "../chat/tree.js";
import { notice, view } from "./view.js";

const MARK = "#message-";

export const asked = () => (location.hash.startsWith(MARK) ? location.hash.slice(MARK.length) : null);

const responseOf = (node) => node.steps?.findLast((step) => step.id)?.id;

export async function copyMessageLink(node) {
  const conversation = current();
  const path = shown(choose(conversation, node.id));
  const at = path.findIndex((each) => each.id === node.id);
  const response = path.map(responseOf).findLast(Boolean);
  await copy(response ? `${address(`c/${response}`)}${MARK}${at + 1}` : `${linkTo(conversation.id)}${MARK}${node.id}`);
  notice(response ? "The link is copied. It opens in every browser that may read this server's answers." : "The link is copied. It opens in this browser.");
}

// Shows the message that the address names: by its number on the way to a response, or by its own id.
export function showLinked(mark = asked(), response = null) {
  if (!mark) return;
  const conversation = current();
  const holder = response && Object.values(conversation.nodes).find((node) => node.steps?.some((step) => step.id === response));
  const node = /^\d+$/.test(mark) ? pathTo(conversation, holder?.id ?? conversation.head)[mark - 1] : conversation.nodes[mark];
  if (!node) {
    notice("This conversation does not have the message of the link.");
    return;
  }
  const within = holder ?? node; // its branch
  if (!shown(conversation).includes(within)) update(conversation.id, (now) => choose(now, within.id));
  view.set({ message: node.id });
}
