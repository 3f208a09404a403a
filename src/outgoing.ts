// The public door for handlers that call addresses which came with a job: `millrace/outgoing`. Apart
// from the others, so that a worker loads an HTTP client only where a handler wants one.
export {
  type AddressRule,
  anyAddress,
  buildGuardedConnector,
  type ConnectorOptions,
  publicOnly,
  RefusedAddressError,
  type ResolveName,
} from './base/public-address.ts';
export { readRetryAfterMs } from './base/retry-after.ts';
