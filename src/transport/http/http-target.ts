// The connections of a worker to one URL: a separate pool for each verb that waits or carries much data, so that none
// queues behind another.
import type { WorkerVerb } from '../../wire/routes/routes.ts';
import type { Target } from '../owner-route.ts';
import {
  Connections,
  type ConnectionsOptions,
  type Post,
  type PostAnswer,
} from './connection-pool.ts';

export type HttpTargetOptions = Omit<ConnectionsOptions, 'max'>;

export class HttpTarget implements Target {
  readonly url: string;
  readonly proxy: URL | undefined;
  readonly #prefix: string;
  readonly #takes: Connections;
  readonly #renewals: Connections;
  readonly #reports: Connections;
  readonly #controlCalls: Connections;

  constructor(options: HttpTargetOptions) {
    this.url = options.url.href;
    this.proxy = options.proxy;
    this.#prefix = options.url.pathname.replace(/\/+$/, '');
    // Two connections: an abandoned one may still be closing, and a renewal that names new leases
    // is sent beside the waiting one.
    const openPool = () => new Connections({ ...options, max: 2 });
    this.#takes = openPool();
    this.#renewals = openPool();
    this.#reports = openPool();
    this.#controlCalls = openPool();
  }

  get isIdle(): boolean {
    return this.#pools.every((pool) => pool.isIdle);
  }

  /** `post.path` is below the path of the URL. Resolves with any complete answer. */
  post(verb: WorkerVerb, post: Post): Promise<PostAnswer> {
    return this.#find(verb).post({ ...post, path: this.#prefix + post.path });
  }

  close(): void {
    for (const pool of this.#pools) pool.close();
  }

  retire(): void {
    for (const pool of this.#pools) pool.retire();
  }

  get #pools(): Connections[] {
    return [this.#takes, this.#renewals, this.#reports, this.#controlCalls];
  }

  #find(verb: WorkerVerb): Connections {
    switch (verb) {
      case 'take':
        return this.#takes;
      case 'renew':
        return this.#renewals;
      case 'report':
        return this.#reports;
      default:
        return this.#controlCalls;
    }
  }
}
