// Which workers may take a job that ran out of memory on a GPU type, at endpoints that ask for the next type. Pure.
import { numberGpuType } from '../../store/store.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';

type Deployment = Pick<EndpointDeployment, 'gpuTypeIds' | 'retryOutOfMemoryOn'>;

/** The type of a worker's GPUs as the platform names it; null without one. */
export function findGpuType(devices: readonly Device[]): string | null {
  return devices.find(({ gpuTypeId }) => gpuTypeId !== undefined)?.gpuTypeId ?? null;
}

/** The endpoint's types after this one, in its order. None unless the endpoint asks for the next type. */
export function listLaterTypes(deployment: Deployment | null, gpuType: string | null): string[] {
  if (deployment?.retryOutOfMemoryOn !== 'NEXT_GPU_TYPE' || gpuType === null) return [];
  const index = deployment.gpuTypeIds.indexOf(gpuType);
  return index < 0 ? [] : deployment.gpuTypeIds.slice(index + 1);
}

/**
 * Whether a worker with this GPU type may take jobs that have outgrown a type, given by its number. Everyone may if the
 * endpoint has no later type.
 */
export function acceptOutgrown(
  deployment: Deployment,
  gpuType: string | null,
): (outgrown: number) => boolean {
  return (outgrown) => {
    const type = deployment.gpuTypeIds.find((each) => numberGpuType(each) === outgrown);
    const later = listLaterTypes(deployment, type ?? null);
    return later.length === 0 || (gpuType !== null && later.includes(gpuType));
  };
}
