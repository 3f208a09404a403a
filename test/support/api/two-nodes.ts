// Two nodes in this process, each with its own queue, and the same keys and endpoints. The test says who owns
// what, and when each of them learns it.
import { openForwarder } from '../../../src/api/forwarding/forwarder.ts';
import type {
  AdvertisedUrls,
  ForwardingOptions,
  OwnerNode,
  Placement,
} from '../../../src/api/forwarding/forwarding-options.ts';
import { ENDPOINT, type Platform, type PlatformSettings, startPlatform } from './platform.ts';

export const SECRET = 'the-secret-of-the-nodes';

/** An owner: the URL of a node, or none. */
type Owner = string | undefined;

/** What one node believes. It learns the truth when it reloads. */
export class FakePlacement implements Placement {
  ownUrl = '';
  refreshes = 0;
  readonly dead = new Set<string>();
  readonly #truth: Map<string, Owner>;
  #known = new Map<string, Owner>();
  #changed = Promise.withResolvers<void>();

  constructor(truth: Map<string, Owner>) {
    this.#truth = truth;
  }

  find(endpointId = 'control'): OwnerNode {
    const owner = this.#known.get(endpointId);
    if (owner === undefined) return { kind: 'none' };
    return owner === this.ownUrl ? { kind: 'here' } : { kind: 'node', url: owner };
  }

  isDead(url: string): boolean {
    return this.dead.has(url);
  }

  async refresh(): Promise<void> {
    this.refreshes += 1;
    this.learn();
  }

  lookUp(): Promise<void> {
    return this.refresh();
  }

  begin(): () => void {
    return () => {};
  }

  learn(): void {
    const before = JSON.stringify([...this.#known]);
    this.#known = new Map(this.#truth);
    if (JSON.stringify([...this.#known]) === before) return;
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  untilChange(signal: AbortSignal): Promise<void> {
    const aborted = new Promise<void>((resolve) => {
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    return Promise.race([this.#changed.promise, aborted]);
  }
}

export interface Node extends Platform {
  nodeUrl: string;
  placement: FakePlacement;
}

export interface TwoNodes {
  /** Owns everything at the start. */
  owner: Node;
  other: Node;
  /** Changes the owner; each node learns it when it reloads, or at once with `learn`. */
  move: (owner: Owner, endpointId?: string) => void;
  learn: () => void;
}

export interface NodesSettings {
  /** Of both. */
  settings?: PlatformSettings;
  forwarding?: Partial<ForwardingOptions>;
  /** What the owner and the other node tell workers. */
  advertise?: readonly [AdvertisedUrls, AdvertisedUrls];
}

export async function startNodes({
  advertise = [{}, {}],
  forwarding = {},
  settings = {},
}: NodesSettings = {}): Promise<TwoNodes> {
  const truth = new Map<string, Owner>();
  const start = async (
    server: PlatformSettings['server'],
    advertised: AdvertisedUrls,
  ): Promise<Node> => {
    const placement = new FakePlacement(truth);
    const platform = await startPlatform({
      ...settings,
      server: {
        ...{ ...settings.server, ...server },
        forwarding: {
          open: openForwarder,
          ...{ placement, secrets: [SECRET], listen: { host: '127.0.0.1', port: 0 } },
          advertised,
          ...forwarding,
        },
      },
    });
    const { nodeUrl } = platform;
    if (nodeUrl === undefined) throw new Error('the node has no port for others');
    placement.ownUrl = nodeUrl;
    return { ...platform, nodeUrl, placement };
  };
  const owner = await start({}, advertise[0]);
  const { admin, balancer, endpoints, keys, worker } = owner;
  const second = await start({ keys, endpoints, balancer }, advertise[1]);
  const call: Platform['call'] = (path, init = {}) => {
    const headers = new Headers(init.headers);
    if (!headers.has('authorization')) headers.set('authorization', `Bearer ${admin}`);
    return second.call(path, { ...init, headers });
  };
  const post: Platform['post'] = (path, body, init = {}) =>
    call(path, {
      method: 'POST',
      ...init,
      headers: { 'content-type': 'application/json', ...init.headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  const other = { ...second, keys, endpoints, admin, worker, call, post };
  const move: TwoNodes['move'] = (url, endpointId = ENDPOINT) => void truth.set(endpointId, url);
  const learn = () => {
    for (const { placement } of [owner, other]) placement.learn();
  };
  move(owner.nodeUrl);
  move(owner.nodeUrl, 'control');
  learn();
  return { owner, other, move, learn };
}
