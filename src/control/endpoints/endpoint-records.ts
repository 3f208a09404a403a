// Converts an endpoint between stored form, API record and requests. Pure.
import type { StoredEndpoint } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type {
  EndpointCreation,
  EndpointDeployment,
  EndpointRecord,
  EndpointScaler,
  EndpointSettings,
  EndpointType,
  EndpointUpdate,
} from '../../wire/resources/endpoint.ts';
import { DEFAULT_VOLUME_PATH, readVolume } from '../../wire/resources/endpoint-volume.ts';

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
    ...{ executionTimeoutMs: executionTimeout, maxAttempts, maxQueued },
    ...(groupConcurrency !== null && { groupConcurrency }),
  };
  const deployment = {
    ...omitDefaults(workers),
    scaler: scaler ?? defaultScaler(workers.type),
  };
  return { deployment, settings };
}

/** Members that earlier releases do not know are stored only with another value than the default. */
function omitDefaults<Given extends RecentFields>(
  given: Given,
): Omit<Given, keyof RecentFields> & Pick<EndpointDeployment, keyof RecentFields> {
  const { networkVolumeId, networkVolumePath, retryOutOfMemoryOn, ...rest } = given;
  return {
    ...rest,
    ...(retryOutOfMemoryOn === 'NEXT_GPU_TYPE' && { retryOutOfMemoryOn }),
    ...(typeof networkVolumeId === 'string' && { networkVolumeId }),
    ...(networkVolumePath !== undefined &&
      networkVolumePath !== DEFAULT_VOLUME_PATH && { networkVolumePath }),
  };
}

type RecentFields = Pick<
  EndpointUpdate,
  'networkVolumeId' | 'networkVolumePath' | 'retryOutOfMemoryOn'
>;

function defaultScaler(type: EndpointType): EndpointScaler {
  return type === 'QUEUE'
    ? { type: 'QUEUE_DELAY', seconds: 4 }
    : { type: 'REQUEST_COUNT', perWorker: 4 };
}

/** Null removes the network volume. */
export type DeploymentChange = Omit<Partial<EndpointDeployment>, 'networkVolumeId'> &
  Pick<EndpointUpdate, 'networkVolumeId'>;

/** Members missing in the update are missing in all parts. */
export function splitUpdate(update: EndpointUpdate): {
  deployment: DeploymentChange;
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
    return { ...changed, deployment: omitDefaults({ ...endpoint.deployment, ...deployment }) };
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
  scaler: defaultScaler('QUEUE'),
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
    ...{ id, name },
    source: 'TEMPLATE',
    retryOutOfMemoryOn: 'ANY_GPU_TYPE',
    ...workers,
    ...readVolume(workers),
    ...{ version, rollout: describeRollout(rollout) },
    ...{ executionTimeout: executionTimeoutMs, maxAttempts, maxQueued, groupConcurrency },
    createdAt: new Date(createdAt).toISOString(),
  };
}

/** Callers see no internal deadlines. */
function describeRollout(stored: EndpointDeployment['rollout']): EndpointRecord['rollout'] {
  if (!stored) return null;
  const { checkUntil: _checkUntil, fromSource: _fromSource, ...rollout } = stored;
  return rollout;
}
