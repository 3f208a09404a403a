// How a server takes part in a platform of several nodes.

import type { FindPodPort } from '../nodes/pod-tunnel.ts';
import type { ForwardingBounds } from './forwarding-bounds.ts';
import type { Placement } from './placement.ts';

/** URLs under which clients and workers reach one node directly, not through a load balancer. */
export interface AdvertisedUrls {
  /** http or https. */
  url?: string | undefined;
  /** Of the gRPC port: grpc or grpcs. */
  grpcUrl?: string | undefined;
}

export interface ForwardingOptions {
  placement: Placement;
  /** The first one is sent, and all are accepted. */
  secrets: readonly string[];
  /** The port for other nodes; 0 selects a free one. */
  listen: { host: string; port: number };
  /** Answers `POST /node/<name>`. Default: every call is unknown. */
  onCall?: ((name: string, body: unknown) => Promise<unknown>) | undefined;
  /** URL at which workers reach this node directly. Default: workers use only their configured URL. */
  advertised?: AdvertisedUrls | undefined;
  /** Where a port of a pod of this machine is. Default: no pod can be reached. */
  findPodPort?: FindPodPort | undefined;
  /** See forwarding-bounds.ts for the defaults. */
  bounds?: Partial<ForwardingBounds> | undefined;
}
