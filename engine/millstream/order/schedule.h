#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "millstream/core/random.h"
#include "millstream/order/order.h"

namespace millstream {

/// What becomes of the samples that do not fill a last batch.
enum class Remainder : std::uint8_t { kPad, kDrop, kWrap };

/// "pad", "drop" or "wrap"; throws `ArgumentError` for another word.
Remainder remainder_named(std::string_view name);

/// Names a batch: the one that (seed, epoch, step) determine.
struct Position {
  Seed seed;
  std::uint32_t epoch = 0;
  std::int64_t step = 0;

  bool operator==(const Position&) const = default;
};

/// An order cut into batches.
class Schedule {
 public:
  /// Throws `ArgumentError` for a batch size below 1, or where dropping the remainder
  /// leaves no batch.
  Schedule(std::shared_ptr<const Order> order, std::int64_t batch_size,
           Remainder remainder);

  std::int64_t steps() const noexcept { return steps_; }
  std::int64_t batch_size() const noexcept { return batch_size_; }
  Remainder remainder() const noexcept { return remainder_; }
  const Order& order() const noexcept { return *order_; }

  /// The batch after `position`: canonical, that is with step < steps().
  Position next(const Position& position) const noexcept;

  /// Rows of that batch that hold samples; the others, at its end, are padding.
  std::int64_t valid_rows(const Position& position) const noexcept;

  /// out[k] is the sample in row first_row + k, or -1 in padding.
  void run(const Position& position, std::int64_t first_row,
           std::span<std::int64_t> out) const;

  /// out[k] is the epoch that the sample in row first_row + k belongs to: where the
  /// remainder wraps, a batch may hold samples of several.
  void epochs(const Position& position, std::int64_t first_row,
              std::span<std::uint32_t> out) const;

  void add_to(Digest& digest) const;

 private:
  struct Place {
    std::uint32_t epoch;
    std::int64_t position;  // within the epoch; at or past its end in padding
  };
  Place place(const Position& position, std::int64_t row) const noexcept;

  std::shared_ptr<const Order> order_;
  std::int64_t batch_size_;
  std::int64_t steps_;
  Remainder remainder_;
};

}  // namespace millstream
