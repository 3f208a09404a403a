// Converts an endpoint between stored form, API record and requests, checks its deployment against engine, catalog and templates,
// and says which network volume its workers mount.
import type { StoredEndpoint, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  type EndpointCreation,
  type EndpointDeployment,
  type EndpointRecord,
  type EndpointScaler,
  type EndpointSettings,
  type EndpointUpdate,
  findDeploymentFaults,
} from '../../wire/resources/endpoint.ts';
import { defaultsOf, pickFields } from '../../wire/resources/field.ts';
import { type EndpointType, JOB_FIELDS, WORKER_FIELDS } from '../../wire/resources/fields.ts';
import type { PodMounts } from '../../wire/resources/pod.ts';
import { type EngineTraits, findMountMisfit } from '../pods/pod-spec.ts';
import { findWindowFaults, listMinimumChanges } from '../scaling/worker-windows.ts';
import type { NamedRecords } from '../user-resources.ts';
import type { Catalog, UserCatalog } from './catalog.ts';
import { type EngineKind, findTemplateFault, readTemplate } from './templates.ts';

/** Without the counters of its jobs. */
export type LiveEndpoint = Pick<
  StoredEndpoint,
  'id' | 'userId' | 'deployment' | 'settings' | 'createdAt' | 'shard'
>;

export function splitCreation(creation: EndpointCreation): {
  deployment: EndpointDeployment;
  settings: EndpointSettings;
} {
  const { executionTimeout: executionTimeoutMs, scaler, ...rest } = creation;
  const [jobs, workers] = pickFields(rest, JOB_FIELDS);
  return {
    deployment: { ...workers, scaler: scaler ?? defaultScaler(workers.type) },
    settings: { ...jobs, executionTimeoutMs },
  };
}

function defaultScaler(type: EndpointType): EndpointScaler {
  return type === 'QUEUE'
    ? { type: 'QUEUE_DELAY', seconds: 4 }
    : { type: 'REQUEST_COUNT', perWorker: 4 };
}

/** Members missing in the update are missing in both parts. */
export function splitUpdate({ executionTimeout, ...rest }: EndpointUpdate): {
  deployment: Partial<EndpointDeployment>;
  settings: Partial<EndpointSettings>;
} {
  const [jobs, deployment] = pickFields(rest, JOB_FIELDS);
  const timeout = executionTimeout !== undefined && { executionTimeoutMs: executionTimeout };
  return { deployment, settings: { ...jobs, ...timeout } };
}

/** @throws ProblemError `conflict` for settings that a declared endpoint does not have */
export function applyUpdate(endpoint: StoredEndpoint, update: EndpointUpdate): StoredEndpoint {
  const { deployment, settings } = splitUpdate(update);
  const changed = { ...endpoint, settings: { ...endpoint.settings, ...settings } };
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
  ...defaultsOf(WORKER_FIELDS),
  templateId: null,
  workersMax: 0,
  scaler: defaultScaler('QUEUE'),
};

/** The name that its owner gave it; a declared endpoint without one has its ID. */
export function nameOf({ deployment, id, settings }: LiveEndpoint): string {
  return deployment?.name ?? settings.name ?? id;
}

export function describeEndpoint(endpoint: LiveEndpoint, now: number): EndpointRecord {
  const { createdAt, deployment, id, settings } = endpoint;
  const { executionTimeoutMs, name = id, ...jobs } = settings;
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
    ...jobs,
    version,
    rollout: describeRollout(rollout),
    workersMinChanges: listMinimumChanges(workers, now).map(({ at, workersMin }) => ({
      ...{ at: new Date(at).toISOString(), workersMin },
    })),
    executionTimeout: executionTimeoutMs,
    createdAt: new Date(createdAt).toISOString(),
  };
}

/** Callers see no internal deadlines. */
function describeRollout(stored: EndpointDeployment['rollout']): EndpointRecord['rollout'] {
  if (!stored) return null;
  const { checkUntil: _checkUntil, fromSource: _fromSource, ...rollout } = stored;
  return rollout;
}

/** What a platform that starts workers has. */
export interface Deploying {
  engine: Exclude<EngineKind, 'none'>;
  catalog: Pick<Catalog, 'hasGpuType'>;
  templates: NamedRecords;
  /** Default: no network volume exists. */
  volumes?: EndpointVolumes | undefined;
  /** @throws ProblemError if the engine is not available to this user */
  admit: (userId: string) => void;
}

const NO_ENGINE =
  'this platform runs without an engine; start it with `millrace serve --engine process`';

/**
 * Checks only given members: the others were valid when they were set.
 * @throws ProblemError `invalid`, `conflict` without an engine, and the errors of `admit`
 */
export function checkDeployment(
  tx: Transaction,
  deploying: Deploying | undefined,
  { deployment, userId }: LiveEndpoint,
  given: Partial<EndpointDeployment> | undefined,
): void {
  if (!deployment || !given || Object.keys(given).length === 0) return;
  if (!deploying) throw new ProblemError('conflict', NO_ENGINE);
  deploying.admit(userId);
  const faults = findDeploymentFaults(deployment);
  const errors = faults.map(({ message, path }) => `${path.join('.')}: ${message}`);
  errors.push(...findWindowFaults(deployment));
  const { gpuTypeIds = [], networkVolumeId, templateId } = given;
  for (const [index, type] of gpuTypeIds.entries()) {
    if (deploying.catalog.hasGpuType(type)) continue;
    errors.push(`gpuTypeIds[${index}]: GPU type ${JSON.stringify(type)} is not in the catalog`);
  }
  if (templateId !== undefined) {
    const template = readTemplate(tx, userId, templateId);
    const { source = 'TEMPLATE', type } = deployment;
    const use = { engine: deploying.engine, type, source };
    const fault = template
      ? findTemplateFault({ ...use, template })
      : `template ${JSON.stringify(templateId)} not found`;
    if (fault) errors.push(`templateId: ${fault}`);
  }
  if (typeof networkVolumeId === 'string') {
    const { volumes } = deploying;
    const fault = volumes
      ? volumes.findFault(userId, networkVolumeId)
      : `network volume ${JSON.stringify(networkVolumeId)} not found`;
    if (fault !== undefined) errors.push(`networkVolumeId: ${fault}`);
  }
  if (errors.length > 0) throw refuse(errors);
}

/** The network volumes that endpoints may name. */
interface EndpointVolumes {
  names: NamedRecords;
  /** Why workers of this user's endpoint cannot mount the volume; undefined if they can. */
  findFault: (userId: string, volumeId: string) => string | undefined;
}

export interface EndpointVolumesOptions {
  names: NamedRecords;
  catalog: Pick<UserCatalog, 'volume'>;
  engine: EngineTraits;
}

export function describeVolumes(options: EndpointVolumesOptions): EndpointVolumes {
  const { catalog, engine, names } = options;
  return {
    names,
    findFault(userId, volumeId) {
      const volume = catalog.volume(userId, volumeId);
      if (!volume) return `network volume ${JSON.stringify(volumeId)} not found`;
      return findMountMisfit(volume.source, engine);
    },
  };
}

/** The mounts of a worker's pod. */
export function listMounts(
  deployment: Pick<EndpointDeployment, 'networkVolumeId' | 'networkVolumePath'>,
): PodMounts {
  const { networkVolumeId: volumeId, networkVolumePath: path } = deployment;
  return volumeId === null ? {} : { network: [{ volumeId, path }] };
}

export function refuse(errors: string[]): ProblemError {
  return new ProblemError('invalid', errors.join('; '), { errors });
}
