// Cells that tables of jobs have: the ID, the error, and the start of the input.
import type { JobSummary } from '../../../../src/client.ts';
import { hrefOf } from '../../routing/location.ts';
import { sayBytes } from '../bytes.ts';
import { Id } from '../copy.tsx';

export function JobId({ endpoint, id }: { endpoint: string; id: string }) {
  return (
    <th scope="row" class="nowrap">
      <Id
        id={id}
        href={hrefOf(`/endpoints/${encodeURIComponent(endpoint)}/jobs/${encodeURIComponent(id)}`)}
      />
    </th>
  );
}

type Error = NonNullable<JobSummary['error']>;

/** Code and the first line of the message. */
export function JobFailure({ error: { code, message } }: { error: Error }) {
  return (
    <span class="failure">
      <code>{code}</code> <span title={message}>{message.split('\n', 1)}</span>
    </span>
  );
}

export function InputPreview({ job: { inputBytes, inputPreview } }: { job: JobSummary }) {
  if (inputPreview !== undefined) {
    return (
      <code class="preview" title={inputPreview}>
        {inputPreview}
      </code>
    );
  }
  return <span class="muted">{inputBytes === undefined ? '–' : sayBytes(inputBytes)}</span>;
}
