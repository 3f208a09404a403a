// Shows callers what their user may use, and uses now.
import type { Clock } from '../../base/clock.ts';
import type { Quotas } from '../../control/limits/quotas.ts';
import { describeQuotas } from '../../control/limits/use.ts';
import {
  LIMITS_OPERATIONS,
  type LimitsRecord,
  type UseCounts,
} from '../../wire/resources/limits.ts';
import { sendJson } from '../http/byte-reply.ts';
import { readUser } from '../http/requests.ts';
import type { RateGate } from '../limits/rate-limit.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

export interface LimitsRoutesOptions {
  clock: Clock;
  quotas?: Quotas | undefined;
  /** Default: no limit for users. */
  rateGate?: Pick<RateGate, 'listUse'> | undefined;
  /** What the user uses of the quotas. @throws ProblemError `unavailable` */
  readUse: (userId: string) => Promise<UseCounts>;
}

export function bindLimits(options: LimitsRoutesOptions): BoundOperation[] {
  const { clock, quotas, rateGate, readUse } = options;
  return bindOperations(LIMITS_OPERATIONS, {
    getLimits: async (request, reply) => {
      const userId = readUser(request);
      const use = await readUse(userId);
      const at = clock.now();
      const rates = (rateGate?.listUse(request) ?? []).map(({ msBeforeNext, ...rate }) => ({
        ...rate,
        endsAt: Math.ceil(at + msBeforeNext),
      }));
      const limits: LimitsRecord = { at, userId, rates, quotas: describeQuotas(use, quotas) };
      return sendJson(reply, limits);
    },
  });
}
