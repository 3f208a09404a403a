// Which node serves an endpoint. The cluster implements it; forwarding follows it.

/** `none`: no node owns the endpoint at the moment. */
export type Place = { kind: 'here' } | { kind: 'node'; url: string } | { kind: 'none' };

export interface Placement {
  /** `undefined` stands for the control plane: everything that belongs to no single endpoint. */
  find(endpointId: string | undefined): Place;
  /** Whether the node with this URL has lost its lease: it owns nothing any more, and may never answer. */
  isDead(url: string): boolean;
  /** Reloads which node owns what. Resolves at once if that has just been done. */
  refresh(): Promise<void>;
  /** Like `refresh`, a few times a second at most: for keys and endpoints that this node does not know. */
  lookUp(): Promise<void>;
  /** This node serves a request for the endpoint or the control plane. @returns the function to call at its end */
  begin(endpointId: string | undefined): () => void;
  /** Resolves at the next change of the placement, or when the signal aborts. */
  untilChange(signal: AbortSignal): Promise<void>;
}
