// Converts an endpoint between stored form, API record and requests. Pure.
import type { StoredEndpoint } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  DEFAULT_VOLUME_PATH,
  type EndpointCreation,
  type EndpointDeployment,
  type EndpointRecord,
  type EndpointScaler,
  type EndpointSettings,
  type EndpointType,
  type EndpointUpdate,
} from '../../wire/resources/endpoint.ts';

/** Without the counters of its jobs. */
export type LiveEndpoint = Pick<
  StoredEndpoint,
  'id' | 'userId' | 'deployment' | 'settings' | 'createdAt' | 'shard'
>;

export function splitCreation(creation: EndpointCreation): {
  deployment: EndpointDeployment;
  settings: EndpointSettings;
} {
  const { executionTimeout, groupConcurrency, maxAttempts, maxQueued, scaler, ...workers } =
    creation;
  const settings = {
    executionTimeoutMs: executionTimeout,
    maxAttempts,
    maxQueued,
    ...(groupConcurrency !== null && { groupConcurrency }),
  };
  const deployment = {
    ...workers,
    scaler: scaler ?? defaultScaler(workers.type),
  };
  return { deployment, settings };
}

function defaultScaler(type: EndpointType): EndpointScaler {
  return type === 'QUEUE'
    ? { type: 'QUEUE_DELAY', seconds: 4 }
    : { type: 'REQUEST_COUNT', perWorker: 4 };
}

/** Members missing in the update are missing in all parts. */
export function splitUpdate(update: EndpointUpdate): {
  deployment: Partial<EndpointDeployment>;
  settings: Partial<EndpointSettings>;
  /** Null removes it from the settings. */
  groupConcurrency: EndpointUpdate['groupConcurrency'];
} {
  const { executionTimeout, groupConcurrency, maxAttempts, maxQueued, ...deployment } = update;
  return {
    deployment,
    groupConcurrency,
    settings: {
      ...(executionTimeout !== undefined && { executionTimeoutMs: executionTimeout }),
      ...(maxAttempts !== undefined && { maxAttempts }),
      ...(maxQueued !== undefined && { maxQueued }),
    },
  };
}

/** @throws ProblemError `conflict` for settings that a declared endpoint does not have */
export function applyUpdate(endpoint: StoredEndpoint, update: EndpointUpdate): StoredEndpoint {
  const { deployment, groupConcurrency, settings } = splitUpdate(update);
  const changed = { ...endpoint, settings: { ...endpoint.settings, ...settings } };
  if (groupConcurrency === null) delete changed.settings.groupConcurrency;
  else if (groupConcurrency !== undefined) changed.settings.groupConcurrency = groupConcurrency;
  if (endpoint.deployment) {
    return { ...changed, deployment: { ...endpoint.deployment, ...deployment } };
  }
  const { name, ...workers } = deployment;
  const [first] = Object.keys(workers);
  if (first !== undefined) {
    const why = `endpoint ${endpoint.id} was declared by its id and has no workers of its own`;
    throw new ProblemError('conflict', `${why}: ${first} cannot be set`);
  }
  return name === undefined ? changed : { ...changed, settings: { ...changed.settings, name } };
}

/** Worker settings of a declared endpoint, which has no workers of its own. */
const NO_DEPLOYMENT: Omit<EndpointDeployment, 'name' | 'templateId'> & { templateId: null } = {
  type: 'QUEUE',
  templateId: null,
  gpuTypeIds: [],
  workersMin: 0,
  workersMax: 0,
  idleTimeout: 5,
  retryOutOfMemoryOn: 'ANY_GPU_TYPE',
  networkVolumeId: null,
  networkVolumePath: DEFAULT_VOLUME_PATH,
  scaler: defaultScaler('QUEUE'),
  source: 'TEMPLATE',
};

/** The name that its owner gave it; a declared endpoint without one has its ID. */
export function nameOf({ deployment, id, settings }: LiveEndpoint): string {
  return deployment?.name ?? settings.name ?? id;
}

export function describeEndpoint(endpoint: LiveEndpoint): EndpointRecord {
  const { createdAt, deployment, id, settings } = endpoint;
  const {
    executionTimeoutMs,
    groupConcurrency = null,
    maxAttempts,
    maxQueued,
    name = id,
  } = settings;
  const {
    lastVersion: _lastVersion,
    rollout,
    version = null,
    ...workers
  } = deployment ?? NO_DEPLOYMENT;
  return {
    id,
    name,
    ...workers,
    version,
    rollout: describeRollout(rollout),
    executionTimeout: executionTimeoutMs,
    maxAttempts,
    maxQueued,
    groupConcurrency,
    createdAt: new Date(createdAt).toISOString(),
  };
}

/** Callers see no internal deadlines. */
function describeRollout(stored: EndpointDeployment['rollout']): EndpointRecord['rollout'] {
  if (!stored) return null;
  const { checkUntil: _checkUntil, fromSource: _fromSource, ...rollout } = stored;
  return rollout;
}
