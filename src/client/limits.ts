// Client of the operation that shows rates and quotas.
import type { LimitsRecord } from '../wire/resources/limits.ts';
import { LIMITS_ROUTES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { ResourceOptions } from './resource-calls.ts';

export interface LimitsClient {
  /** What the user of this client's key may use, and uses now. */
  get(options?: ResourceOptions): Promise<LimitsRecord>;
}

export function connectLimits(caller: ApiCaller): LimitsClient {
  const { path } = LIMITS_ROUTES.getLimits;
  return { get: ({ signal } = {}) => caller.json<LimitsRecord>({ path, signal }) };
}
