// The catalog: the operator's file with the passwords that it refers to, and over nodes the GPUs of the machines that answer.
// control/endpoints/catalog-contents.ts defines the contents.
import { readFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { dirname, resolve } from 'node:path';
import type { Log } from '../../base/log.ts';
import { Catalog } from '../../control/endpoints/catalog.ts';
import {
  type CatalogContents,
  type CatalogFile,
  catalogFile,
  composeCatalog,
  type DeclaredRegistry,
  type Processors,
} from '../../control/endpoints/catalog-contents.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { describeIssues } from '../../wire/problem.ts';
import type { MachineInfo } from '../machines/machine-agent.ts';
import { describeError, PlatformOptionError } from '../option-error.ts';

/** Pods run on nodes of a cluster that nobody has described, not on this machine. Many nodes can run this. */
const USUAL_NODE: Processors = { vcpus: 16, memoryBytes: 64 * 1_073_741_824 };

export interface CatalogOptions {
  /** Undefined: the catalog is the machine's own hardware. */
  path: string | undefined;
  /** Devices of this machine. */
  devices: readonly Device[];
  /** Reads variables that hold passwords. */
  readVariable: (name: string) => string | undefined;
  /** `kubernetes`: the default CPU flavor is not as large as this machine. */
  engine?: string | undefined;
  log: Log;
}

/** @throws PlatformOptionError that names the file and each wrong path in it */
export function openCatalog(options: CatalogOptions): Catalog {
  return openCatalogOfMachines(options).catalog;
}

/**
 * With a function that returns the contents for other devices, from the file as it was read.
 * @throws PlatformOptionError as `openCatalog` does
 */
function openCatalogOfMachines(options: CatalogOptions) {
  const { log, path } = options;
  const machine = { vcpus: availableParallelism(), memoryBytes: totalmem() };
  const processors = options.engine === 'kubernetes' ? USUAL_NODE : machine;
  const file = path === undefined ? undefined : readCatalogFile(path);
  const passwords = new Map<DeclaredRegistry, string>();
  const compose = (devices: readonly Device[]): CatalogContents =>
    composeCatalog({
      file,
      devices,
      processors,
      readPassword(registry) {
        const password = passwords.get(registry) ?? readPassword(registry, options);
        passwords.set(registry, password);
        return password;
      },
    });
  const contents = compose(options.devices);
  warnOfUnknownGpus(contents, options.devices, log);
  return { catalog: new Catalog(contents), compose };
}

function readCatalogFile(path: string): CatalogFile {
  const checked = catalogFile.safeParse(parseFile(path));
  if (checked.success) return checked.data;
  throw refuse(`${path}: ${describeIssues(checked.error, 'the file').join('; ')}`);
}

function parseFile(path: string): unknown {
  const content = readText('', path);
  try {
    return JSON.parse(content);
  } catch (error) {
    throw refuse(`${path} is not JSON: ${describeError(error)}`);
  }
}

/**
 * A relative path starts at the catalog's folder; a line break at the end of the password is
 * removed.
 */
function readPassword(
  { id, passwordEnv, passwordFile }: DeclaredRegistry,
  { path = '.', readVariable }: CatalogOptions,
): string {
  const origin = `${path}: password of registry "${id}": `;
  if (passwordFile !== undefined) {
    return readText(origin, resolve(dirname(path), passwordFile)).replace(/\r?\n$/, '');
  }
  const password = passwordEnv === undefined ? undefined : readVariable(passwordEnv);
  if (password !== undefined) return password;
  throw refuse(`${origin}the environment variable ${passwordEnv} is not set`);
}

function readText(origin: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw refuse(`${origin}${describeError(error)}`);
  }
}

/** Otherwise only a user who gets no GPU would notice a misspelt name. */
function warnOfUnknownGpus({ gpus }: CatalogContents, devices: readonly Device[], log: Log): void {
  for (const { devices: own, id } of gpus) {
    if (own.length === 0) log.warn({ gpuType: id }, 'GPU type matches no device of this machine');
  }
  const offered = new Set(gpus.flatMap((type) => type.devices));
  for (const { kind, name, uuid } of devices) {
    if (kind !== 'gpu' || offered.has(uuid)) continue;
    log.warn({ device: name, uuid }, 'GPU matches no type of the catalog, no pod can use it');
  }
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', 'compute.catalogFile', problem);
}

/** The catalog over the machines of all nodes: the operator's file, with the GPUs of the machines that answer. */
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
