// The rules that `millrace conformance platform` checks, by a clock that stands still while calls travel.
import { afterEach, beforeEach, describe, it } from 'vitest';
import { platformChecks } from '../../../src/conformance/platform/platform-checks.ts';
import type { PlatformStage } from '../../../src/conformance/platform/scripted-worker.ts';
import type { WorkerLink } from '../../../src/wire/link/worker-link.ts';
import { openClient } from '../../support/network/link-ports.ts';
import { type Carrier, ENDPOINT, Platform } from '../../support/queue-platform.ts';

/** Rules that the server of a carrier keeps: the queue itself knows no keys and no bounds of messages. */
const SERVER_RULES = ['rejects a wrong key', 'are rejected if one is larger than 1,000,000 bytes'];
export const queueChecks = platformChecks.filter(({ rule }) => !SERVER_RULES.includes(rule));

export function describeRules(
  name: string,
  open: (platform: Platform) => Promise<Carrier>,
  checks: typeof platformChecks,
): void {
  describe(`${name}, by the rules of the protocol`, () => {
    let stage: PlatformStage;
    const closers: (() => Promise<void>)[] = [];

    beforeEach(async () => {
      const platform = new Platform();
      closers.push(() => platform.close());
      await platform.start();
      const carrier = await open(platform);
      closers.push(() => carrier.close());
      const { client, close } = await openClient(platform);
      closers.push(close);
      const link = carrier.link(ENDPOINT);
      stage = {
        ...drive(platform, link),
        ...{ client, wrongKeyLink: carrier.wrongKeyLink ?? link },
        terms: { leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000, capabilities: ['log'] },
        submitted: [],
        workers: [],
      };
    });

    afterEach(async () => {
      for (const close of closers.splice(0).reverse()) await close();
    });

    it.each(checks)('$area: $rule', ({ run }) => run(stage));
  });
}

/** Time passes only when a check lets it pass, and when all of its waiting calls are at the platform. */
function drive(platform: Platform, link: WorkerLink): Pick<PlatformStage, 'link' | 'time'> {
  const waiting: Promise<unknown>[] = [];
  const park = async <T>(verb: 'renew' | 'take', call: () => Promise<T>): Promise<T> => {
    const parked = platform.park(verb, call);
    waiting.push(parked);
    return (await parked).answer;
  };
  return {
    link: {
      hello: (hello) => link.hello(hello),
      take: (request, signal) => park('take', () => link.take(request, signal)),
      renew: (request, signal) => park('renew', () => link.renew(request, signal)),
      report: (request) => link.report(request),
      bye: (bye) => link.bye(bye),
    },
    time: {
      now: () => platform.clock.now(),
      async pass(ms) {
        await Promise.all(waiting.splice(0));
        await platform.clock.advance(ms);
      },
      answerMs: 60_000,
    },
  };
}
