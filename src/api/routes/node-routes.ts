// Lists the nodes of the platform for its operator.
import type { Clock } from '../../base/clock.ts';
import { NODE_OPERATIONS, type NodeList, type NodeRecord } from '../../wire/resources/nodes.ts';
import { requireOwner } from '../http/auth.ts';
import { sendJson } from '../http/byte-reply.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

export interface NodeRoutesOptions {
  clock: Clock;
  listNodes: () => Promise<NodeRecord[]>;
}

/** Nodes show URLs and machines, which concern nobody but the operator. */
export function bindNodes({ clock, listNodes }: NodeRoutesOptions): BoundOperation[] {
  return bindOperations(NODE_OPERATIONS, {
    getNodes: async ({ holder }, reply) => {
      requireOwner(holder);
      const list: NodeList = { at: clock.now(), nodes: await listNodes() };
      return sendJson(reply, list);
    },
  });
}
