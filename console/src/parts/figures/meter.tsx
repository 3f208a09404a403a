// How much of a limit is used: numbers, and a bar that turns when little is left.

interface MeterProps {
  /** What is measured, for screen readers. */
  label: string;
  used: number;
  /** Null: nothing is limited. */
  limit: number | null;
  unit?: string;
}

/** From this share on, little is left. */
const FULL = 0.9;

export function Meter({ label, limit, unit = '', used }: MeterProps) {
  const suffix = unit && ` ${unit}`;
  if (limit === null) return <>{`${used.toLocaleString()}${suffix}`}</>;
  const text = `${used.toLocaleString()} of ${limit.toLocaleString()}${suffix}`;
  return (
    <span class="measure">
      <meter
        aria-label={label}
        value={used}
        max={Math.max(limit, used, 1)}
        high={limit * FULL}
        optimum={0}
      />
      <span>{text}</span>
    </span>
  );
}
