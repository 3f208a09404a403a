// Millrace through its client library: all callers share one client, as those of the peers share one connection.
import { type Client, createClient } from 'millrace/client';
import { submitFrom, timeEachRun } from './peers/peer.ts';
import type { Platform } from './processes.ts';
import { PlatformStand } from './stands.ts';

export class LibraryStand extends PlatformStand {
  readonly #client: Client;

  constructor(platform: Platform, endpoint: string) {
    super(platform, endpoint);
    this.#client = createClient({ url: platform.url, key: platform.adminKey, endpoint });
  }

  override async submitMany(load: { clients: number; jobs: number; input: object }): Promise<void> {
    await submitFrom(load, () => this.#client.run(load.input));
  }

  override timeRoundTrips(count: number, input: object): Promise<number[]> {
    return timeEachRun(count, () => this.#client.runsync(input));
  }
}
