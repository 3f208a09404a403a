// A device with what is known of it beyond what the platform is told.
import type { Device } from '../../wire/link/worker-link.ts';

export type Vendor = 'nvidia' | 'amd' | 'intel' | 'host';

export interface FoundDevice {
  /**
   * As told to the platform and to handlers. `index` counts the GPUs of one vendor by PCI bus id,
   * from 0; a MIG device has that of its GPU.
   */
  device: Device;
  vendor: Vendor;
  /** Empty for the host's processors. */
  pciBusId: string;
  /** Of a MIG device. */
  mig?: MigPlace;
}

export interface MigPlace {
  parentUuid: string;
  /** Within its GPU, as in `nvidia-smi -L`. */
  index: number;
  gpuInstanceId: number;
  computeInstanceId: number;
}
