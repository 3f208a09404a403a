// Which endpoints there are: declares them and knows their names. What is queued at one is queue/'s.
import type { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import type { Store, StoredEndpoint } from '../store/store.ts';
import { endpointId, endpointSettings } from '../wire/endpoint.ts';
import { describeIssues } from '../wire/issues.ts';
import { ProblemError } from '../wire/problem.ts';

export interface EndpointsOptions {
  store: Store;
  clock: Clock;
}

export class Endpoints {
  readonly #options: EndpointsOptions;
  readonly #ids: Set<string>;

  private constructor(options: EndpointsOptions, ids: Set<string>) {
    this.#options = options;
    this.#ids = ids;
  }

  static async open(options: EndpointsOptions): Promise<Endpoints> {
    const stored = await options.store.read((tx) => tx.endpoints());
    return new Endpoints(options, new Set(stored.map(({ id }) => id)));
  }

  /**
   * Declares an endpoint. One that is there keeps its jobs and counters; its settings are replaced
   * if any are given. @throws ProblemError `invalid`
   */
  async ensureEndpoint(
    id: string,
    settings?: z.input<typeof endpointSettings>,
  ): Promise<StoredEndpoint> {
    const checkedId = endpointId.safeParse(id);
    if (!checkedId.success) throw refuse(describeIssues(checkedId.error, `endpoint "${id}"`));
    const checked = endpointSettings.safeParse(settings ?? {});
    if (!checked.success) throw refuse(describeIssues(checked.error, 'settings'));
    const createdAt = this.#options.clock.now();
    const endpoint = await this.#options.store.write(function* (tx) {
      const known = yield* tx.endpoint(id);
      if (known && settings === undefined) return known;
      yield* tx.putEndpoint({
        id,
        settings: checked.data,
        createdAt: known?.createdAt ?? createdAt,
      });
      return yield* tx.endpoint(id);
    });
    if (!endpoint) throw new Error(`endpoint ${id} was put and is not there`);
    this.#ids.add(id);
    return endpoint;
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  /** With their counters; read from the store, so that it also tells whether the store answers. */
  list(): Promise<StoredEndpoint[]> {
    return this.#options.store.read((tx) => tx.endpoints());
  }
}

function refuse(errors: string[]): ProblemError {
  return new ProblemError('invalid', errors.join('; '), { errors });
}
