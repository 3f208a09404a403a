// Client of the operation that lists the nodes of a platform.
import type { NodeList } from '../wire/resources/nodes.ts';
import { NODE_ROUTES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { ResourceOptions } from './resource-calls.ts';

export interface NodesClient {
  /** The nodes of the platform; for keys of its operator. */
  list(options?: ResourceOptions): Promise<NodeList>;
}

export function connectNodes(caller: ApiCaller): NodesClient {
  const { path } = NODE_ROUTES.getNodes;
  return { list: ({ signal } = {}) => caller.json<NodeList>({ path, signal }) };
}
