// The public API for handlers that call addresses from a job's input: `millrace/outgoing`. A separate
// entry, so that a worker loads an HTTP client only if a handler needs one.

export { readRetryAfterMs } from './base/backoff.ts';
export {
  type AddressRule,
  anyAddress,
  buildGuardedConnector,
  type ConnectorOptions,
  publicOnly,
  RefusedAddressError,
  type ResolveName,
} from './base/net/public-address.ts';
