// The conformance suite for every carrier of WorkerLink, and for the queue without a carrier.
import { afterEach, beforeEach, describe } from 'vitest';
import {
  type Carrier,
  ENDPOINT,
  Hand,
  type HandOptions,
  Platform,
} from '../../support/queue-platform.ts';
import { describeLosses } from './link-losses.ts';
import { describeReports } from './link-reports.ts';
import { describeVisits } from './link-visits.ts';
import { describeWaits } from './link-waits.ts';

export interface LinkStage {
  readonly platform: Platform;
  /** A worker that has not said hello. */
  hand(options?: HandOptions): Hand;
  /** A worker that has said hello. */
  worker(options?: HandOptions): Promise<Hand>;
  /** Restarts the platform and the carrier. */
  restart(awayMs?: number): Promise<void>;
}

/** Settings on which the tests depend; the others keep their defaults. */
const SETTINGS = { maxChunkBytes: 1_000 };

export function describeLink(name: string, open: (platform: Platform) => Promise<Carrier>): void {
  describe(name, () => {
    let platform: Platform;
    let carrier: Carrier;

    beforeEach(async () => {
      platform = new Platform({ settings: SETTINGS });
      await platform.start();
      carrier = await open(platform);
    });

    afterEach(async () => {
      await carrier.close();
      await platform.close();
    });

    const stage: LinkStage = {
      get platform() {
        return platform;
      },
      hand: (options) => new Hand(() => carrier.link(ENDPOINT), options),
      async worker(options) {
        const hand = stage.hand(options);
        await hand.hello();
        return hand;
      },
      async restart(awayMs) {
        await carrier.close();
        await platform.restart(awayMs);
        carrier = await open(platform);
      },
    };

    describeVisits(stage);
    describeWaits(stage);
    describeReports(stage);
    describeLosses(stage);
  });
}
