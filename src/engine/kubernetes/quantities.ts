// Reads the quantities of Kubernetes, such as 250m, 1500n or 64Mi. Pure.

const UNITS: Readonly<Record<string, number>> = {
  ...{ n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 },
  ...{ Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 },
};

/** Undefined for another form. */
export function readQuantity(text: string): number | undefined {
  const [, number, unit = ''] = /^([0-9.]+)([a-zA-Z]*)$/.exec(text) ?? [];
  const factor = UNITS[unit];
  if (number === undefined || factor === undefined) return undefined;
  const value = Number(number) * factor;
  return Number.isFinite(value) ? value : undefined;
}
