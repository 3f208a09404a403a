// How a server takes part in a platform of several nodes.
import type { ForwardingBounds } from './forwarding-bounds.ts';
import type { Placement } from './placement.ts';

export interface ForwardingOptions {
  placement: Placement;
  /** The first one is sent, and all are accepted. */
  secrets: readonly string[];
  /** The port for other nodes; 0 selects a free one. */
  listen: { host: string; port: number };
  /** Answers `POST /node/<name>`. Default: every call is unknown. */
  onCall?: ((name: string, body: unknown) => Promise<unknown>) | undefined;
  /** See forwarding-bounds.ts for the defaults. */
  bounds?: Partial<ForwardingBounds> | undefined;
}
