#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millstream/core/column.h"
#include "millstream/core/memory.h"
#include "millstream/core/random.h"
#include "millstream/core/schema.h"
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

/// The samples in hand, for stages that draw random numbers.
struct Samples {
  Seed seed;
  std::span<const std::int64_t> indices;  // -1 in padding
  std::span<const std::uint32_t> epochs;  // one a row
  std::uint32_t stage = 0;                // under which the stage draws
  CallContext context = {};
  std::int64_t first = 0;  // row of the batch that row 0 is

  /// What this stage may draw for the sample in row k.
  Random random(std::int64_t k) const {
    const auto row = static_cast<std::size_t>(k);
    return {seed, epochs[row], indices[row], stage};
  }
};

/// A pure function from a sample to a sample, given randomness; it sees several samples
/// at a time, each a row of its columns.
class Transform {
 public:
  virtual ~Transform() = default;

  /// What stands in messages and explanations, e.g. "normalize(image)".
  virtual std::string str() const = 0;

  virtual StageKind kind() const noexcept = 0;

  /// Whether it draws random numbers. A stage that does not leaves the numbers of
  /// others as they are.
  virtual bool draws() const noexcept { return false; }

  /// Called once, when a plan is built; throws `ArgumentError` if the input does not
  /// suit.
  virtual Flow flow(const Schema& input) const = 0;

  /// Writes rows [0, rows) of the output columns that `flow`, its own answer, calls
  /// made; the others are in place already.
  virtual void apply(const Flow& flow, std::span<const Column> input,
                     std::span<const Column> output, std::int64_t rows,
                     const Samples& samples, Memory& memory) const = 0;

  /// The worker pool that does the work, so that applying means waiting; null if there
  /// is none.
  virtual WorkerPool* worker_pool() const noexcept { return nullptr; }
};

/// The flow of a stage that passes everything on.
Flow passing(const Schema& input);

}  // namespace millstream
