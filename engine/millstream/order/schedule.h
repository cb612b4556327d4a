#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "millstream/core/random.h"
#include "millstream/order/order.h"

namespace millstream {

/// What to do with the samples that do not fill a last batch.
enum class Remainder : std::uint8_t { kPad, kDrop, kWrap };

/// Parses "pad", "drop" or "wrap". Throws `ArgumentError` for any other name.
Remainder remainder_named(std::string_view name);

/// The position of a batch: (seed, epoch, step) determine its contents.
struct Position {
  Seed seed;
  std::uint32_t epoch = 0;
  std::int64_t step = 0;

  bool operator==(const Position&) const = default;
};

/// An order that is divided into batches. Immutable and thread-safe.
class Schedule {
 public:
  /// Throws `ArgumentError` unless the batch size is between 1 and 2^31. Also throws if
  /// dropping the remainder leaves no batch.
  Schedule(std::shared_ptr<const Order> order, std::int64_t batch_size,
           Remainder remainder);

  std::int64_t steps() const noexcept { return steps_; }
  std::int64_t batch_size() const noexcept { return batch_size_; }
  Remainder remainder() const noexcept { return remainder_; }
  const Order& order() const noexcept { return *order_; }

  /// The position of the next batch, with step < steps().
  Position next(const Position& position) const noexcept;

  /// The number of rows of the batch that hold samples. The rows after them are
  /// padding.
  std::int64_t valid_rows(const Position& position) const noexcept;

  /// Sets out[k] to the sample in row first_row + k, or to -1 in padding.
  void run(const Position& position, std::int64_t first_row,
           std::span<std::int64_t> out) const;

  /// Sets out[k] to the epoch of the sample in row first_row + k. With `kWrap`, a batch
  /// may hold samples of several epochs.
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
