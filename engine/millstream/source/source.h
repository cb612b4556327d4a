#pragma once

#include <cstdint>
#include <span>

#include "millstream/core/request.h"
#include "millstream/core/schema.h"
#include "millstream/core/traits.h"
#include "millstream/core/worker_pool.h"

namespace millstream {

/// Random-access samples. Implementations are immutable after construction; all methods
/// are thread-safe. A sample depends only on its index and, if `traits().draws`, on the
/// seed and the epoch of the request.
///
/// No method has a default, so that a wrapping source cannot forget to forward one.
class Source {
 public:
  virtual ~Source() = default;

  virtual std::int64_t size() const noexcept = 0;
  virtual const Schema& schema() const noexcept = 0;

  /// The cost of `read`.
  virtual Traits traits() const noexcept = 0;

  /// Writes sample `request.indices[k]`, which is in [0, size()), to row k of each
  /// column. A column with `data` is written in place and converted to its dtype. A
  /// column with only `rows` receives pointers to bytes of the schema's dtype, which
  /// stay valid until `rows.memory` is reset. The source may read in any order.
  virtual void read(const Request& request, Rows& rows) const = 0;

  /// A hint that these samples will be read soon.
  virtual void prepare(std::span<const std::int64_t> indices) const noexcept = 0;

  /// The worker pool that makes the samples, or null. Batches should be allocated by
  /// this pool.
  virtual WorkerPool* worker_pool() const noexcept = 0;
};

/// Reads samples that do not belong to a batch, with seed 0 and epoch 0.
inline void read_samples(const Source& source, std::span<const std::int64_t> indices,
                         std::span<const Column> columns, Memory& memory) {
  Rows rows{columns, memory};
  source.read(Request{indices}, rows);
}

}  // namespace millstream
