// Builds the request for NVIDIA GPUs, and checks whether a container got them: some engines ignore
// members that they do not know. Pure.
import { z } from 'zod';
import { EngineError } from '../engine.ts';

/** `cdi`: by device files of NVIDIA's toolkit, for any engine; `nvidia`: by its hook in Docker. */
export type GpuMeans = 'cdi' | 'nvidia';

export interface DeviceRequest {
  Driver: string;
  DeviceIDs: string[];
  Capabilities?: string[][];
}

/** Which members an engine reports depends on its kind and version. */
export const gpuInfo = z.object({
  MemTotal: z.number(),
  CDISpecDirs: z.array(z.string()).nullish(),
  DiscoveredDevices: z.array(z.object({ ID: z.string() })).nullish(),
});

/** The parts of an inspected container that describe devices. */
export interface GivenDevices {
  DeviceRequests?:
    | readonly { DeviceIDs?: readonly string[] | null | undefined }[]
    | null
    | undefined;
  Devices?: readonly { PathOnHost?: string | undefined }[] | null | undefined;
}

const NVIDIA_UUID = /^(GPU|MIG)-/;

/** @throws EngineError `refused` for GPUs of another vendor */
export function checkVendor(uuids: readonly string[]): void {
  const other = uuids.find((uuid) => !NVIDIA_UUID.test(uuid));
  if (other === undefined) return;
  throw new EngineError(
    'refused',
    `${other} is not an NVIDIA GPU; containers get only NVIDIA GPUs`,
  );
}

export function chooseMeans({
  CDISpecDirs,
}: Pick<z.infer<typeof gpuInfo>, 'CDISpecDirs'>): GpuMeans {
  return CDISpecDirs?.length ? 'cdi' : 'nvidia';
}

export function requestGpus(uuids: readonly string[], means: GpuMeans): DeviceRequest[] {
  if (uuids.length === 0) return [];
  if (means === 'cdi') return [{ Driver: 'cdi', DeviceIDs: uuids.map(nameDevice) }];
  return [{ Driver: 'nvidia', DeviceIDs: [...uuids], Capabilities: [['gpu']] }];
}

/**
 * Overrides the image and the spec. If NVIDIA's runtime is the default one, it gives a container
 * the GPUs that this variable names.
 */
export function pinVariables(uuids: readonly string[], means: GpuMeans): Record<string, string> {
  const isByVariable = means === 'nvidia' && uuids.length > 0;
  return { NVIDIA_VISIBLE_DEVICES: isByVariable ? uuids.join(',') : 'void' };
}

export function hasGpus(given: GivenDevices, uuids: readonly string[]): boolean {
  const requested = (given.DeviceRequests ?? []).flatMap(({ DeviceIDs }) => DeviceIDs ?? []);
  const devices = (given.Devices ?? []).map(({ PathOnHost }) => PathOnHost);
  const all = new Set([...requested, ...devices]);
  return uuids.every((uuid) => all.has(uuid) || all.has(nameDevice(uuid)));
}

function nameDevice(uuid: string): string {
  return `nvidia.com/gpu=${uuid}`;
}
