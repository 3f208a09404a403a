// What a node knows about the nodes of its cluster and about the shards: the rows of the tables `node` and `shard`.

export interface NodeView {
  id: string;
  /** Where other nodes reach it. */
  url: string;
  /** Its lease is valid, by the clock of the database. */
  isLive: boolean;
  /** It hands its shards over and takes no new ones. */
  isLeaving: boolean;
  /** Version of its program's schema. */
  version: number;
  /** Changes with each change of endpoints, templates and keys that the node has made as the leader. */
  controlNumber: number;
}

export interface ShardView {
  id: number;
  /** Node that serves it; null after an offer, and before the first claim. */
  owner: string | null;
  /** Node that may claim it. */
  offeredTo: string | null;
  /** The last node that could not open it. It gets the shard only if there is no other node. */
  failedOn: string | null;
  /** Counts the claims. */
  epoch: number;
}

export interface ClusterView {
  nodes: readonly NodeView[];
  shards: readonly ShardView[];
}
