// How much of a limit is used, or how much is done: numbers, and a bar.

interface MeterProps {
  /** What is measured, for screen readers. */
  label: string;
  used: number;
  /** Null: nothing is limited. */
  limit: number | null;
  unit?: string;
  /** The limit is to be reached; otherwise the bar turns when little is left. */
  isGoal?: boolean;
}

/** From this share on, little is left. */
const FULL = 0.9;

export function Meter({ isGoal, label, limit, unit = '', used }: MeterProps) {
  const suffix = unit && ` ${unit}`;
  if (limit === null) return <>{`${used.toLocaleString()}${suffix}`}</>;
  const text = `${used.toLocaleString()} of ${limit.toLocaleString()}${suffix}`;
  return (
    <span class="measure">
      <meter
        aria-label={label}
        value={used}
        max={Math.max(limit, used, 1)}
        {...(!isGoal && { high: limit * FULL, optimum: 0 })}
      />
      <span>{text}</span>
    </span>
  );
}
