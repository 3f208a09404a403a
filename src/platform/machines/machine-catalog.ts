// The catalog over the machines of all nodes: the operator's file, with the GPUs of the machines that answer.
import type { Catalog } from '../../control/endpoints/catalog.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { type CatalogOptions, openCatalogOfMachines } from '../files/catalog-file.ts';
import type { MachineInfo } from './machine-messages.ts';

export class MachineCatalog {
  readonly catalog: Catalog;
  readonly #compose: ReturnType<typeof openCatalogOfMachines>['compose'];
  /** Of all machines since the start, by UUID: a type whose GPUs are gone keeps its price. */
  readonly #devices = new Map<string, Device>();

  /** With the GPUs of this machine. @throws PlatformOptionError */
  constructor(options: CatalogOptions) {
    const { catalog, compose } = openCatalogOfMachines(options);
    this.catalog = catalog;
    this.#compose = compose;
  }

  /** These machines answer now. */
  update(machines: readonly MachineInfo[]): void {
    const found = machines.flatMap(({ devices }) => devices);
    for (const device of found) this.#devices.set(device.uuid, device);
    const usable = new Set(found.map(({ uuid }) => uuid));
    const { gpus, ...rest } = this.#compose([...this.#devices.values()]);
    const offered = gpus.map((type) => ({
      ...type,
      devices: type.devices.filter((uuid) => usable.has(uuid)),
    }));
    this.catalog.replace({ ...rest, gpus: offered });
  }
}
