// Serves the bill.
import type { Billing } from '../../control/billing/billing.ts';
import { isOperator } from '../../control/keys/key-grant.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  BILLED_KINDS,
  BILLING_GROUPS,
  BILLING_OPERATIONS,
  BILLING_STEPS,
} from '../../wire/resources/billing.ts';
import { sendJson } from '../http/byte-reply.ts';
import {
  describeNext,
  readChoice,
  readInteger,
  readPageRequest,
  readText,
  requireHolder,
} from '../http/requests.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

const ANY_TIME = { min: 0, max: 8_640_000_000_000 };

export function bindBilling(billing: Pick<Billing, 'show'>): BoundOperation[] {
  return bindOperations(BILLING_OPERATIONS, {
    getBilling: async (request, reply) => {
      const { query } = request;
      const { next, ...page } = await billing.show({
        ...readPageRequest(request),
        userId: chooseUser(requireHolder(request), readText(query, 'userId')),
        step: readChoice(query, 'step', BILLING_STEPS) ?? 'day',
        group: readChoice(query, 'group', BILLING_GROUPS) ?? 'each',
        kind: readChoice(query, 'kind', BILLED_KINDS),
        id: readText(query, 'id'),
        from: readInteger(query, 'from', ANY_TIME),
        to: readInteger(query, 'to', ANY_TIME),
      });
      return sendJson(reply, { ...page, ...describeNext(next) });
    },
  });
}

/** Undefined: all users. @throws ProblemError `forbidden` */
function chooseUser(holder: KeyHolder, userId = holder.userId): string | undefined {
  if (isOperator(holder)) return userId === '*' ? undefined : userId;
  // A user may have the name `*`.
  if (userId === holder.userId) return userId;
  const detail = 'the bills of other users are for the operator of the platform only';
  throw new ProblemError('forbidden', detail);
}
