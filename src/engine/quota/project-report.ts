// Reads the projects of a file system with their limits, and chooses a free project. Pure.
import { hash } from 'node:crypto';

const BYTES_PER_KB = 1_024;
/** Projects of folders of the platform: Docker and operators count up from 1. */
export const FIRST_PROJECT = 1_073_741_824;
const PROJECTS = 1_073_741_824;

export interface ProjectUse {
  usedBytes: number;
  /** 0: no limit. */
  limitBytes: number;
}

/** `report`: output of `repquota -P -n -O csv`. By project ID. */
export function readReport(report: string): Map<number, ProjectUse> {
  const projects = new Map<number, ProjectUse>();
  for (const line of report.split('\n')) {
    const [name = '', , , used, , limit] = line.split(',');
    const id = /^#(\d+)$/.exec(name)?.[1];
    if (id === undefined) continue;
    const toBytes = (kilobytes: string | undefined) => Number(kilobytes ?? 0) * BYTES_PER_KB;
    projects.set(Number(id), { usedBytes: toBytes(used), limitBytes: toBytes(limit) });
  }
  return projects;
}

/** `listing`: output of `lsattr -pd`. Undefined if the folder has no project of the platform. */
export function readProject(listing: string): number | undefined {
  const id = Number(/^\s*(\d+)\s/.exec(listing)?.[1] ?? 0);
  return isOwn(id) ? id : undefined;
}

/** The same folder gets the same one, unless another folder has it. */
export function chooseProject(path: string, taken: { has(id: number): boolean }): number {
  const start = Number.parseInt(hash('sha256', path, 'hex').slice(0, 12), 16) % PROJECTS;
  for (let step = 0; ; step += 1) {
    const id = FIRST_PROJECT + ((start + step) % PROJECTS);
    if (!taken.has(id)) return id;
  }
}

function isOwn(id: number): boolean {
  return id >= FIRST_PROJECT && id < FIRST_PROJECT + PROJECTS;
}
