#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millstream/core/request.h"
#include "millstream/core/schema.h"
#include "millstream/core/traits.h"
#include "millstream/core/worker_pool.h"

namespace millstream {

/// What a transform makes of a schema: its output and, for each output field, the input
/// field whose bytes it passes on as they are, or `kMade`.
struct Flow {
  static constexpr int kMade = -1;
  Schema schema;
  std::vector<int> from;
};

/// What a stage is. The first stage of a kind that draws random numbers draws them
/// under the number of its kind, the next ones under the numbers that follow. The
/// numbers are promised: changing one changes what users' pipelines draw. A new kind
/// takes the next multiple of 2^16.
enum class StageKind : std::uint32_t {
  kFunction = 0,  // outside of the engine, such as a Python function
  kNormalize = 1 << 16,
  kFlatten = 2 << 16,
  kRename = 3 << 16,
};

/// A pure function from a sample to a sample, given randomness; it sees several samples
/// at a time, each a row of its columns. Any number of threads may apply it at once.
class Transform {
 public:
  virtual ~Transform() = default;

  /// What stands in messages and explanations, e.g. "normalize(image)".
  virtual std::string str() const = 0;

  virtual StageKind kind() const noexcept = 0;

  /// Whether it draws random numbers. A stage that does not leaves the numbers of
  /// others as they are.
  virtual bool draws() const noexcept = 0;

  /// Called once, when a plan is built; throws `ArgumentError` if the input does not
  /// suit.
  virtual Flow flow(const Schema& input) const = 0;

  /// What applying it takes.
  virtual Traits traits() const noexcept = 0;

  /// Writes the columns of `out` that `flow`, its own answer, calls made; the others
  /// are in place already. Row k of both holds sample `request.indices[k]`.
  virtual void apply(const Flow& flow, const Request& request, const Rows& in,
                     Rows& out) const = 0;

  /// The worker pool that does the work, or null. Batches are best placed in memory of
  /// the pool; what applying costs is in `traits`.
  virtual WorkerPool* worker_pool() const noexcept = 0;
};

/// The flow of a stage that passes everything on.
Flow passing(const Schema& input);

}  // namespace millstream
