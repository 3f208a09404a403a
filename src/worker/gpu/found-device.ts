// A detected device, with more details than the platform gets.
import type { Device } from '../../wire/link/worker-link.ts';

export type Vendor = 'nvidia' | 'amd' | 'intel' | 'host';

export interface FoundDevice {
  /**
   * As sent to the platform and to handlers. `index` counts the GPUs of one vendor by PCI bus ID,
   * from 0; a MIG device has the index of its GPU.
   */
  device: Device;
  vendor: Vendor;
  /** Empty for the host's processors. */
  pciBusId: string;
  /** Set for a MIG device. */
  mig?: MigPlace;
}

export interface MigPlace {
  parentUuid: string;
  /** Index within its GPU, as in `nvidia-smi -L`. */
  index: number;
  gpuInstanceId: number;
  computeInstanceId: number;
}
