// An error that a person can act on: what the platform answered, and each invalid field.
import { ApiError, UnreachableError } from '../platform/calls.ts';

interface ProblemProps {
  error: Error;
  /** Offers to try again. */
  onRetry?: () => void;
}

export function Problem({ error, onRetry }: ProblemProps) {
  const { details, title } = describe(error);
  return (
    <div class="problem" role="alert">
      <p>
        <strong>{title}</strong>
      </p>
      {details.length > 0 && (
        <ul>
          {details.map((detail) => (
            <li key={detail}>{detail}</li>
          ))}
        </ul>
      )}
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

function describe(error: Error): { title: string; details: readonly string[] } {
  if (error instanceof ApiError) {
    const { detail, errors = [] } = error.problem;
    return { title: detail, details: errors };
  }
  if (error instanceof UnreachableError) {
    return { title: 'The platform does not answer. Check that it runs.', details: [] };
  }
  return { title: error.message, details: [] };
}
