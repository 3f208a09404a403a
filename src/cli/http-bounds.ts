// The operator's bounds on what callers of the HTTP API may use: options, and the bounds made of them.
import { DEFAULT_BOUNDS, type HttpBounds } from '../api/bounds.ts';
import { listAddresses } from '../api/connections.ts';
import { integer, list, type OptionValues, UsageError } from './options.ts';

const MB = 1_048_576;

interface BoundOption {
  min: number;
  max: number;
  default: number;
  help: string;
}

function bound(placeholder: string, option: BoundOption) {
  return integer({ ...option, placeholder, section: 'advanced' });
}

const DAY_S = 86_400;
const MAX_MB = 1_048_576;

export const httpBoundOptions = {
  maxBesideInputBytes: bound('BYTES', {
    ...{ min: 1_024, max: 20 * MB, default: DEFAULT_BOUNDS.maxBesideInputBytes },
    help: 'JSON of a run or runsync request beside its input',
  }),
  maxTargetBytes: bound('BYTES', {
    ...{ min: 1_024, max: 65_536, default: DEFAULT_BOUNDS.maxTargetBytes },
    help: 'path and query of a request',
  }),
  maxHeaderBytes: bound('BYTES', {
    ...{ min: 4_096, max: MB, default: DEFAULT_BOUNDS.maxHeaderBytes },
    help: 'headers of a request',
  }),
  inFlightMb: bound('MB', {
    ...{ min: 32, max: MAX_MB, default: DEFAULT_BOUNDS.maxInFlightBytes / MB },
    help: 'request bodies and answers in memory, of all users',
  }),
  userInFlightMb: bound('MB', {
    ...{ min: 32, max: MAX_MB, default: DEFAULT_BOUNDS.maxUserInFlightBytes / MB },
    help: 'the same for each user',
  }),
  workerInFlightMb: bound('MB', {
    ...{ min: 64, max: MAX_MB, default: DEFAULT_BOUNDS.maxWorkerInFlightBytes / MB },
    help: 'the same, reserved for workers; half of it for each user',
  }),
  inFlightWaitMs: bound('MS', {
    ...{ min: 0, max: 60_000, default: DEFAULT_BOUNDS.inFlightWaitMs },
    help: 'how long a request waits for these bytes before it gets 503, ms',
  }),
  stallSeconds: bound('S', {
    ...{ min: 1, max: DAY_S, default: DEFAULT_BOUNDS.stallMs / 1_000 },
    help: 'how long a client may neither send of a body nor read of an answer, s',
  }),
  headersSeconds: bound('S', {
    ...{ min: 1, max: DAY_S, default: DEFAULT_BOUNDS.headersMs / 1_000 },
    help: 'how long a client may take to send its headers, s',
  }),
  transferSeconds: bound('S', {
    ...{ min: 10, max: DAY_S, default: DEFAULT_BOUNDS.transferMs / 1_000 },
    help: 'how long a client may take to send a request, or to read an answer that ends, s',
  }),
  idleSeconds: bound('S', {
    ...{ min: 1, max: DAY_S, default: DEFAULT_BOUNDS.idleMs / 1_000 },
    help: 'how long a connection is kept without a request, s',
  }),
  maxConnections: bound('N', {
    ...{ min: 10, max: 1_000_000, default: DEFAULT_BOUNDS.maxConnections },
    help: 'open connections',
  }),
  maxAddressConnections: bound('N', {
    ...{ min: 1, max: 1_000_000, default: DEFAULT_BOUNDS.maxAddressConnections },
    help: 'open connections of one address that have not shown a valid key, loopback excepted',
  }),
  trustedProxy: list({
    placeholder: 'ADDRESS',
    section: 'advanced',
    help: 'address, or network as 10.0.0.0/8, that --max-address-connections does not bound',
  }),
};

/** @throws UsageError */
export function readHttpBounds(values: OptionValues<typeof httpBoundOptions>): HttpBounds {
  try {
    listAddresses(values.trustedProxy);
  } catch (error) {
    throw new UsageError(`--trusted-proxy: ${error instanceof Error ? error.message : error}`);
  }
  if (values.userInFlightMb > values.inFlightMb) {
    throw new UsageError(
      `--user-in-flight-mb: must be at most --in-flight-mb, which is ${values.inFlightMb}`,
    );
  }
  return {
    maxBesideInputBytes: values.maxBesideInputBytes,
    maxTargetBytes: values.maxTargetBytes,
    maxHeaderBytes: values.maxHeaderBytes,
    maxInFlightBytes: values.inFlightMb * MB,
    maxUserInFlightBytes: values.userInFlightMb * MB,
    maxWorkerInFlightBytes: values.workerInFlightMb * MB,
    inFlightWaitMs: values.inFlightWaitMs,
    stallMs: values.stallSeconds * 1_000,
    headersMs: values.headersSeconds * 1_000,
    transferMs: values.transferSeconds * 1_000,
    idleMs: values.idleSeconds * 1_000,
    maxConnections: values.maxConnections,
    maxAddressConnections: values.maxAddressConnections,
    trustedProxies: values.trustedProxy,
  };
}
