// The deployment of an endpoint: checks it against the platform's engine, its catalog and the user's templates, and
// says which network volume its workers mount.
import type { Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { type EndpointDeployment, findDeploymentFaults } from '../../wire/resources/endpoint.ts';
import type { PodMounts } from '../../wire/resources/pod.ts';
import type { NamedRecords } from '../name-index.ts';
import { type EngineTraits, findMountMisfit } from '../pods/engine-fit.ts';
import type { Catalog } from './catalog.ts';
import type { LiveEndpoint } from './endpoint-records.ts';
import { type EngineKind, findTemplateFault, readTemplate } from './templates.ts';

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
  catalog: Pick<Catalog, 'volume'>;
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
