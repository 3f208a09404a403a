// Client of the operation that shows what resources cost.
import type {
  BilledKind,
  BillingGroup,
  BillingPage,
  BillingStep,
} from '../wire/resources/billing.ts';
import { BILLING_ROUTES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { ResourceOptions } from './resource-calls.ts';

export interface BillingOptions extends ResourceOptions {
  /** Default: `day`. */
  step?: BillingStep | undefined;
  /** What one record sums up. Default: `each`. */
  group?: BillingGroup | undefined;
  /** Unix ms. Default: the last 24 hours or 30 days. */
  from?: number | undefined;
  to?: number | undefined;
  kind?: BilledKind | undefined;
  /** Of one resource. */
  id?: string | undefined;
  /** For the operator: another user, or `*` for all. Default: the user of the key. */
  userId?: string | undefined;
  /** Most records of the page. Default 100. */
  limit?: number | undefined;
  cursor?: string | undefined;
}

export interface BillingClient {
  /** One page of what pods, endpoints and network volumes cost. */
  get(options?: BillingOptions): Promise<BillingPage>;
}

export function connectBilling(caller: ApiCaller): BillingClient {
  const { path } = BILLING_ROUTES.getBilling;
  return {
    get: ({ signal, ...options } = {}) => {
      const query = new URLSearchParams();
      for (const [name, value] of Object.entries(options)) {
        if (value !== undefined) query.set(name, String(value));
      }
      return caller.json<BillingPage>({ path: `${path}?${query}`, signal });
    },
  };
}
