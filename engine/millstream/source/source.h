#pragma once

#include <cstdint>
#include <span>

#include "millstream/core/request.h"
#include "millstream/core/schema.h"
#include "millstream/core/traits.h"
#include "millstream/core/worker_pool.h"

namespace millstream {

/// A random-access collection of samples.
///
/// Sources are immutable: any number of threads may read at once, and a sample is the
/// same every time. No function has a default, so that a source that wraps others
/// answers for them.
class Source {
 public:
  virtual ~Source() = default;

  virtual std::int64_t size() const noexcept = 0;
  virtual const Schema& schema() const noexcept = 0;

  /// What reading takes.
  virtual Traits traits() const noexcept = 0;

  /// Writes sample `request.indices[k]`, which is in [0, size()), to row k of each
  /// column. A column with `data` is written there, converted to its dtype; one with
  /// only `rows` receives pointers to bytes of the schema's dtype, valid until the
  /// memory of `rows` is reset. Reads may be coalesced and reordered.
  virtual void read(const Request& request, Rows& rows) const = 0;

  /// These samples will be read soon.
  virtual void prepare(std::span<const std::int64_t> indices) const noexcept = 0;

  /// A worker pool whose workers make the samples, or null. Batches are best placed in
  /// memory of the pool; what reading costs is in `traits`.
  virtual WorkerPool* worker_pool() const noexcept = 0;
};

/// Reads samples outside any batch.
inline void read_samples(const Source& source, std::span<const std::int64_t> indices,
                         std::span<const Column> columns, Memory& memory) {
  Rows rows{columns, memory};
  source.read(Request{indices}, rows);
}

}  // namespace millstream
