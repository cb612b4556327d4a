#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millstream/core/request.h"
#include "millstream/core/schema.h"
#include "millstream/core/traits.h"
#include "millstream/core/worker_pool.h"

namespace millstream {

/// How a transform changes a schema. `schema` is its output. `from[i]` is the input
/// field whose bytes output field i takes over unchanged, or `kMade` if the transform
/// writes new bytes.
struct Flow {
  static constexpr int kMade = -1;
  Schema schema;
  std::vector<int> from;
};

/// The kind of a stage, which is part of its random key. The first stage of a kind that
/// draws random numbers uses the number of its kind, and each later one the next
/// number. These numbers never change, because changing one changes the random numbers
/// of users' pipelines. A new kind takes the next multiple of 2^16.
enum class StageKind : std::uint32_t {
  kFunction = 0,  // a function outside the engine, such as a Python function
  kNormalize = 1 << 16,
  kFlatten = 2 << 16,
  kRename = 3 << 16,
  kMap = 4 << 16,     // a function that XLA runs with a JAX key; see `Origin`
  kSource = 5 << 16,  // sources that draw; several of them use the same number
  kRandomFlip = 6 << 16,
  kRandomCrop = 7 << 16,
};

/// A pure function of a sample and of random numbers that are keyed by that sample. One
/// call transforms several samples, one per row. Implementations are immutable; all
/// methods are thread-safe.
class Transform {
 public:
  virtual ~Transform() = default;

  /// The name in messages and in `explain()`, e.g. "normalize(image)".
  virtual std::string str() const = 0;

  virtual StageKind kind() const noexcept = 0;

  /// Whether the transform draws random numbers. A stage that does not has no effect on
  /// the random numbers of other stages.
  virtual bool draws() const noexcept = 0;

  /// The output schema for this input. A plan calls it once, when it is built. Throws
  /// `ArgumentError` if the transform cannot take the input.
  virtual Flow flow(const Schema& input) const = 0;

  /// The cost and the possible failures of `apply`.
  virtual Traits traits() const noexcept = 0;

  /// Writes the columns of `out` that are `kMade` in `flow`. The caller has already set
  /// the other columns. `flow` is what `flow()` returned. Row k of `in` and `out` holds
  /// sample `request.indices[k]`. If the context has host values, they are those of
  /// these rows.
  virtual void apply(const Flow& flow, const Request& request, const Rows& in,
                     Rows& out) const = 0;

  /// The worker pool that runs the transform, or null. If there is one, batches are
  /// best allocated with `WorkerPool::block`.
  virtual WorkerPool* worker_pool() const noexcept = 0;
};

/// The flow of a transform that leaves every field unchanged.
Flow passing(const Schema& input);

/// The name of a transform of several fields, e.g. "random_flip(image, mask)".
std::string named(const std::string& name, const std::vector<std::string>& fields);

}  // namespace millstream
