// For a path that names no page.
import { hrefOf } from '../routing/location.ts';

export function Page() {
  return (
    <div class="empty">
      <h1>Page not found</h1>
      <p>
        This address names no page of the console. <a href={hrefOf('/')}>Open the overview</a>.
      </p>
    </div>
  );
}
