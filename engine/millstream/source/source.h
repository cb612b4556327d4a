#pragma once

#include <cstdint>
#include <span>

#include "millstream/core/column.h"
#include "millstream/core/memory.h"
#include "millstream/core/schema.h"
#include "millstream/core/worker_pool.h"

namespace millstream {

/// A random-access collection of samples.
///
/// Sources are immutable: any number of threads may read at once, and a sample is the
/// same every time.
class Source {
 public:
  virtual ~Source() = default;

  virtual std::int64_t size() const noexcept = 0;
  virtual const Schema& schema() const noexcept = 0;

  /// Row k of `columns` becomes sample indices[k], all of them in [0, size()).
  /// A column with `data` is written there, converted to its dtype; one with only
  /// `rows` is given pointers to bytes of the schema's dtype, valid until `memory` is
  /// reset. Reads may be coalesced and reordered. Row 0 is row `first` of the batch
  /// that `context` belongs to.
  virtual void read_for(const CallContext& context, std::int64_t first,
                        std::span<const std::int64_t> indices,
                        std::span<Column> columns, Memory& memory) const = 0;

  /// The same outside of any batch.
  void read(std::span<const std::int64_t> indices, std::span<Column> columns,
            Memory& memory) const {
    read_for({}, 0, indices, columns, memory);
  }

  /// These samples will be read soon.
  virtual void hint(std::span<const std::int64_t>) const noexcept {}

  /// Whether reading costs no more than a copy, so that reading ahead is not worth it.
  virtual bool resident() const noexcept { return false; }

  /// The worker pool that makes the samples, so that reading means waiting; null if
  /// there is none.
  virtual WorkerPool* worker_pool() const noexcept { return nullptr; }

  /// Whether `read_for` gives the rows to its worker pool at once, with `context`.
  virtual bool queues() const noexcept { return false; }
};

}  // namespace millstream
