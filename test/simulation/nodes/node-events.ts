// Events of a world with nodes. A large run must cover all of them; a run without one of them tests too little.

export const NODE_EVENTS = [
  // What happens to nodes, connections and the database.
  'killed',
  'vanished',
  'paused',
  'left',
  'clock_set',
  'connection_cut',
  'connection_lost',
  'network_stalled',
  'network_slow',
  'network_refused',
  'database_restarted',
  'session_ended',
  'lock_lost',
  'write_failed',
  'commit_failed',
  'commit_unheard',
  'commit_lost',
  'commit_slow',
  // What the nodes do about it.
  'opened',
  'taken_over',
  'taken_from_paused',
  'fenced',
  'lost',
  // Calls between nodes.
  'forwarded',
  'refused',
  'broken_off',
  'repeated',
] as const;
export type NodeEvent = (typeof NODE_EVENTS)[number];

export class NodeEvents {
  readonly counts = new Map<NodeEvent, number>();

  count(event: NodeEvent): void {
    this.counts.set(event, (this.counts.get(event) ?? 0) + 1);
  }
}
